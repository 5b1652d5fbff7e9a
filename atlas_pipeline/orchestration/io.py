"""The default IO manager refuses every value: no asset can persist content by accident."""

import dagster as dg


class RefusingIOManager(dg.IOManager):
    """Stages hand each other rows, never values through Dagster."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Refuse. The value is not named, since it may be content."""
        raise dg.Failure("io_manager_refuses_values", allow_retries=False)

    def load_input(self, context: dg.InputContext) -> object:
        """Refuse."""
        raise dg.Failure("io_manager_refuses_values", allow_retries=False)


@dg.io_manager
def refusing_io_manager(_context: dg.InitResourceContext) -> RefusingIOManager:
    """The manager under the default name ``io_manager``."""
    return RefusingIOManager()
