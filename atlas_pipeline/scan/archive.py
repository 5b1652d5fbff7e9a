"""What the directory of a zip says about itself, read without unpacking a byte. A second look beside clamd's.

clamd reports encrypted members and limits only while its Alert settings are on, so both are checked here as well; an
Office document is a zip too. Other archive formats are left to clamd.
"""

from __future__ import annotations

import io
import zipfile

DIRECTORY_MAX_BYTES = 4_000_000  # every entry takes 46 bytes and becomes an object of about 500
MEMBERS_MAX = 10_000
UNPACKED_MAX_BYTES = 1_000_000_000

_END_OF_DIRECTORY = b"PK\x05\x06"
_END_OF_DIRECTORY_REACH = 65_557  # its 22 bytes and the longest comment
_ENCRYPTED = 0x1


def zip_objection(content: bytes) -> str | None:
    """Why a zip must not pass (``encrypted``, ``limits_exceeded``, ``archive_damaged``); None where there is nothing.

    Bytes that are no zip have no objection. Bytes that start like one but whose directory can't be read do: two
    programs may then see two different archives. Sizes in a directory can lie, so this only ever says no.
    """
    end = content.rfind(_END_OF_DIRECTORY, max(0, len(content) - _END_OF_DIRECTORY_REACH))
    if end < 0:
        return None
    if int.from_bytes(content[end + 12 : end + 16], "little") > DIRECTORY_MAX_BYTES:
        return "limits_exceeded" if content.startswith(b"PK") else None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
    except Exception:  # noqa: BLE001 - zipfile answers hostile directories with errors of a dozen kinds; all mean the same
        return "archive_damaged" if content.startswith(b"PK") else None
    if any(member.flag_bits & _ENCRYPTED for member in members):
        return "encrypted"
    if len(members) > MEMBERS_MAX or sum(member.file_size for member in members) > UNPACKED_MAX_BYTES:
        return "limits_exceeded"
    return None
