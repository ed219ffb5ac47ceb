"""How a broker gets into an etcd: whom it trusts, and how it says who it is. Secrets lie in files only."""

import ssl
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import ConfigError

CA_KEY: Final = "failoverCaFile"
CERT_KEY: Final = "failoverCertFile"
KEY_KEY: Final = "failoverKeyFile"
USER_KEY: Final = "failoverUser"
PASSWORD_KEY: Final = "failoverPasswordFile"


class Access(NamedTuple):
    """Files by their names; empty: not used."""

    ca_file: str = ""  # whom to trust; empty: whom the machine trusts
    cert_file: str = ""  # a certificate of our own, and its key
    key_file: str = ""
    user: str = ""
    password_file: str = ""

    def require(self, *, tls: bool) -> None:
        """ConfigError: they do not go together."""
        for name, value in ((CA_KEY, self.ca_file), (CERT_KEY, self.cert_file)):
            if value and not tls:
                raise ConfigError(name, value, "needs TLS: failover=etcds://...")
        if bool(self.cert_file) != bool(self.key_file):
            given = self.cert_file or self.key_file
            raise ConfigError(CERT_KEY, given, f"goes with {KEY_KEY}, and the reverse")
        if bool(self.user) != bool(self.password_file):
            given = self.user or self.password_file
            raise ConfigError(USER_KEY, given, f"goes with {PASSWORD_KEY}, and the reverse")

    def tls_context(self) -> ssl.SSLContext:
        """Return how TLS is spoken. ConfigError: a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as cause:  # an SSLError is one
            raise ConfigError(CA_KEY, self.ca_file, f"cannot be read: {cause}") from cause
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except OSError as cause:
                rule = f"cannot be used with {KEY_KEY}={self.key_file}: {cause}"
                raise ConfigError(CERT_KEY, self.cert_file, rule) from cause
        return context

    def password(self) -> str:
        """Read the password: it may have been changed. ConfigError: the file cannot be read."""
        try:
            return Path(self.password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as cause:
            what = cause.strerror if isinstance(cause, OSError) else "is no text"
            raise ConfigError(PASSWORD_KEY, self.password_file, f"cannot be read: {what}") from None
