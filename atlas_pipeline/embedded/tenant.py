"""The demo's one client: a small joinery with a git repository and a site. Exists under ATLAS_DEMO alone.

Makes the repository and the first deployment, once. Starting the site's server is the caller's part
(``site_command``), git worktrees for agents are made by the spawn stage, and the row in the topology table is written
by the store.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from atlas_pipeline.embedded.site import deploy as site_deploy
from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import Tenant

SLUG = "menuiserie-lorme"
BRANCH = "main"
_SITE = Path(__file__).resolve().parent / "site"
_AUTHOR = {"NAME": "Atelier Demo", "EMAIL": "demo@atelier.example", "DATE": "2026-01-05T09:00:00+01:00"}


def ensure_demo_tenant(root: Path, port: int) -> Tenant:
    """The demo tenant below ``root``, its site expected on ``port`` of loopback. Made once, found by later calls.

    ``root/site.git`` is a bare repository with one commit on ``main``; ``root/preprod/current`` its deployment. A
    repository that is there already is never touched, nor is a deployment. Raises NotConfigured(demo_tenant_failed)
    when git is missing or fails.
    """
    root = root.resolve()
    repository, target = root / "site.git", root / "preprod"
    root.mkdir(parents=True, exist_ok=True)
    if not repository.exists():
        _make_repository(root, repository)
    if not (target / "current").exists():
        try:
            site_deploy.publish(repository, _git(repository, "rev-parse", BRANCH), target)
        except site_deploy.DeployError:
            raise NotConfigured("demo_tenant_failed", step="deploy") from None
    return Tenant(
        slug=SLUG,
        name="Menuiserie Lorme",
        active=True,
        internal=True,
        domains=("menuiserie-lorme.example",),
        contacts=("claire.lorme@menuiserie-lorme.example",),
        zones=("app.py", "static/", "content.json"),
        repository=str(repository),
        branch=BRANCH,
        preprod_url=f"http://127.0.0.1:{port}",
        deploy_command=_deploy_command(repository, target),
        default_routes=("/", "/equipe", "/devis", "/contact"),
        version_route="/version",
    )


def site_command(root: Path, port: int) -> list[str]:
    """The command that serves the deployed site on loopback; it ends on SIGTERM.

    Give it a bare environment: it runs agents' work.
    """
    current = root.resolve() / "preprod" / "current"
    return [sys.executable, "-I", str(_SITE / "server.py"), "--root", str(current), "--port", str(port)]


def _deploy_command(repository: Path, target: Path) -> tuple[str, ...]:
    # By file and isolated (-I), not by module: the command runs inside the agent's work tree, and with -m a file
    # planted there under the name of a module would be imported with the rights of the deployment.
    script = str(_SITE / "deploy.py")
    return (
        sys.executable,
        "-I",
        script,
        "--repository",
        str(repository),
        "--commit",
        "{commit}",
        "--target",
        str(target),
    )


def _make_repository(root: Path, repository: Path) -> None:
    """Build beside the final place and move there in one step, so that half a repository is never found."""
    with tempfile.TemporaryDirectory(prefix=".site-", dir=root) as folder:
        fresh, tree = Path(folder) / "site.git", Path(folder) / "tree"
        shutil.copytree(_SITE / "template", tree, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        _git(Path(folder), "init", "--quiet", "--bare", f"--initial-branch={BRANCH}", str(fresh))
        _git(fresh, "--work-tree", str(tree), "add", "--all")
        _git(fresh, "--work-tree", str(tree), "commit", "--quiet", "--no-verify", "-m", "Première version du site")
        try:
            fresh.rename(repository)
        except OSError:
            if not repository.is_dir():  # otherwise another process was faster, with the same commit
                raise


def _git(folder: Path, *arguments: str) -> str:
    """git with a fixed author and nobody's configuration, so that the first commit is always the same."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}
    environment |= {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in _AUTHOR.items()}
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise NotConfigured("demo_tenant_failed", step=f"git_{arguments[0].strip('-')}") from None
    return done.stdout.decode().strip()
