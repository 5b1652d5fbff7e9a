"""Makes Chromium trust a certificate authority of our own, and nothing else more than before.

Chromium has no option for it: its switches turn checking off, for a whole chain or altogether. What it does read is the
user's NSS database. So one is made in a home folder of the browser's own, by NSS itself, which Chromium depends on and
whose command line tools are rarely installed. Host names, dates and chains are checked as ever.
"""

from __future__ import annotations

import ctypes
import re
import ssl
from pathlib import Path

from atlas_pipeline.errors import NotConfigured

DATABASE = Path(".pki") / "nssdb"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PERMANENT_COPY = 1
# A trusted authority for servers; neither for mail nor for code.
_TRUST = b"C,,"


class _Item(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("data", ctypes.c_char_p), ("length", ctypes.c_uint))


class _Trust(ctypes.Structure):
    _fields_ = (("ssl", ctypes.c_uint), ("email", ctypes.c_uint), ("signing", ctypes.c_uint))


def certificates(ca_file: Path) -> list[bytes]:
    """The certificates of a PEM file as DER. Raises NotConfigured(``qa_ca_file_unreadable``), also where there is none."""
    try:
        found = [ssl.PEM_cert_to_DER_cert(pem) for pem in _PEM.findall(ca_file.read_text("ascii"))]
    except (OSError, ValueError):
        found = []
    if not found:
        raise NotConfigured("qa_ca_file_unreadable")
    return found


def trust(home: Path, ca_file: Path) -> None:
    """Make ``home`` a home folder in which Chromium trusts the authorities of ``ca_file``; once a process.

    Raises NotConfigured: ``qa_ca_file_unreadable``, or ``qa_ca_not_possible`` where NSS is missing or refuses.
    """
    authorities = certificates(ca_file)
    folder = home / DATABASE
    folder.mkdir(parents=True, exist_ok=True)
    try:
        nss = ctypes.CDLL("libnss3.so")
    except OSError:
        raise NotConfigured("qa_ca_not_possible") from None
    for name in ("PK11_GetInternalKeySlot", "CERT_GetDefaultCertDB", "CERT_NewTempCertificate"):
        getattr(nss, name).restype = ctypes.c_void_p
    _must(nss.NSS_InitReadWrite(f"sql:{folder}".encode()))
    try:
        slot = ctypes.c_void_p(nss.PK11_GetInternalKeySlot())
        _must(nss.PK11_InitPin(slot, b"", b""))
        for number, der in enumerate(authorities):
            _add(nss, slot, f"atlas-{number}".encode(), der)
        nss.PK11_FreeSlot(slot)
    finally:
        nss.NSS_Shutdown()


def _add(nss: ctypes.CDLL, slot: ctypes.c_void_p, name: bytes, der: bytes) -> None:
    database = ctypes.c_void_p(nss.CERT_GetDefaultCertDB())
    item = _Item(0, der, len(der))
    certificate = ctypes.c_void_p(nss.CERT_NewTempCertificate(database, ctypes.byref(item), None, 0, _PERMANENT_COPY))
    if not certificate.value:
        raise NotConfigured("qa_ca_file_unreadable")
    wanted = _Trust()
    _must(nss.PK11_ImportCert(slot, certificate, ctypes.c_ulong(0), name, 0))
    _must(nss.CERT_DecodeTrustString(ctypes.byref(wanted), _TRUST))
    _must(nss.CERT_ChangeCertTrust(database, certificate, ctypes.byref(wanted)))
    nss.CERT_DestroyCertificate(certificate)


def _must(answer: int) -> None:
    if answer != 0:
        raise NotConfigured("qa_ca_not_possible")
