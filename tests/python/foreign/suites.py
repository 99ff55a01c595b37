"""Other projects' clients and the tests of them, unpatched, from their registries.

``python suites.py`` fetches all that every run of the tests takes, ``python suites.py --all`` also
what the tests marked ``foreign`` take; a test fetches its own.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from fetching import ERRORS, copy, made, program, run
else:
    from .fetching import ERRORS, copy, made, program, run

GO_MODULE, GO_VERSION = "github.com/rabbitmq/amqp091-go", "v1.16.0"
HTTP_MODULE, HTTP_VERSION = "github.com/michaelklishin/rabbit-hole/v2", "v2.12.0"
AMQP, KOMBU, CELERY, AMQPSTORM = "amqp==5.4.2", "kombu==5.7.0", "celery==5.7.0", "amqpstorm==3.1.4"
FLOWER = "flower==2.2.0"
MOTO = "moto[s3,server]==5.2.5"
LAPIN, LAPIN_FEATURES = "lapin@=4.12.3", ("--no-default-features", "--features", "tokio,smol")
AMQPLIB = "amqplib@2.3.1"
AMQP_TOOLS = ("amqp-declare-queue", "amqp-publish", "amqp-get", "amqp-consume", "amqp-delete-queue")
PYTEST = ("pytest>=8,<9", "pytest-rerunfailures", "pytest-timeout")

# ---- Go ----

GO_ENVIRONMENT = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}


def go_client() -> Path:
    """The module's sources, with what its tests need in Go's cache."""
    return _go_module(GO_MODULE, GO_VERSION)


def go_client_of_http() -> Path:
    """The same of the management API's client, which is Terraform's as well."""
    return _go_module(HTTP_MODULE, HTTP_VERSION)


def _go_module(module: str, version: str) -> Path:
    go = program("go", "golang-go")

    def make(folder: Path) -> None:
        told = run(
            *(go, "mod", "download", "-json", f"{module}@{version}"),
            cwd=folder,
            more=GO_ENVIRONMENT,
        )
        copy(json.loads(told)["Dir"], folder)
        run(go, "mod", "download", cwd=folder, more=GO_ENVIRONMENT)

    name = module.removesuffix("/v2").rpartition("/")[2]
    return made(f"{name}-{version}", make)


# ---- Python ----


def python_with(name: str, *packages: str) -> Path:
    """An environment with packages of its own; its interpreter."""

    def make(folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "install", "-q", *packages)

    return made(name, make) / "bin/python"


def python_clients() -> Path:
    """An interpreter with kombu and what is below it, and what kombu's tests take."""
    return python_with("python-clients", AMQP, KOMBU, *PYTEST, "pytz", "hypothesis")


def python_of_celery() -> Path:
    """An interpreter with Celery and what its tests take."""
    more = ("pytest-subtests", "pydantic", "redis")
    return python_with("python-celery", AMQP, KOMBU, CELERY, *PYTEST, *more)


def python_of_flower() -> Path:
    """An interpreter with Celery and Flower."""
    return python_with("python-flower", AMQP, KOMBU, CELERY, FLOWER)


def python_of_moto() -> Path:
    """An interpreter with a server that speaks S3."""
    return python_with("python-moto", MOTO)


def python_of_amqpstorm() -> Path:
    return python_with("python-amqpstorm", AMQPSTORM, "requests", *PYTEST)


def source_of(requirement: str) -> Path:
    """The sources of a package, as its sdist has them."""

    def make(folder: Path) -> None:
        options = ("--no-deps", "--no-binary", ":all:", "-d", folder)
        run(python_clients(), "-m", "pip", "download", "-q", *options, requirement)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(folder, filter="data")
        archive.unlink()

    (source,) = made(requirement.replace("==", "-"), make).iterdir()
    return source


# ---- Rust ----


def rust_client() -> Path:
    """The crate's sources, with its tests built."""
    cargo = program("cargo", "cargo")

    def make(folder: Path) -> None:
        fetching = folder / "fetching"
        run(cargo, "init", "-q", "--name", "fetching", fetching)
        run(cargo, "add", "-q", LAPIN, "--no-default-features", cwd=fetching)
        run(cargo, "fetch", "-q", cwd=fetching)
        told = run(cargo, "metadata", "-q", "--format-version", "1", cwd=fetching)
        name = LAPIN.partition("@")[0]
        (manifest,) = (
            package["manifest_path"]
            for package in json.loads(told[told.index("{") :])["packages"]
            if package["name"] == name
        )
        copy(Path(manifest).parent, folder / name)

    crate = made(LAPIN.replace("@=", "-"), make) / LAPIN.partition("@")[0]
    run(*cargo_test(cargo), "--no-run", "-q", cwd=crate)  # where it stays: what moves is built anew
    return crate


def cargo_test(cargo: str) -> tuple[str, ...]:
    """Without debug information its tests are small and soon built."""
    return (cargo, "test", "--tests", "--config", "profile.test.debug=false", *LAPIN_FEATURES)


# ---- JavaScript ----


def node_clients() -> tuple[str, Path]:
    """Node, and a folder of packages."""
    node, npm = program("node", "nodejs"), program("npm", "npm")

    def make(folder: Path) -> None:
        run(npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, AMQPLIB)

    return node, made(AMQPLIB, make) / "node_modules"


# ---- C ----


def c_client() -> tuple[str, str]:
    """A compiler, and its flags for rabbitmq-c."""
    flags = run(program("pkg-config", "pkg-config"), "--cflags", "--libs", "librabbitmq")
    return program("cc", "gcc"), flags


def tools() -> None:
    for tool in AMQP_TOOLS:
        program(tool, "amqp-tools")


EVERY_RUN = (
    go_client,
    python_clients,
    lambda: source_of(AMQP),
    lambda: source_of(KOMBU),
    python_of_celery,
    python_of_flower,
    python_of_moto,
    lambda: source_of(CELERY),
    python_of_amqpstorm,
    lambda: source_of(AMQPSTORM),
    node_clients,
    c_client,
    tools,
)
FOREIGN = (rust_client, go_client_of_http)


def main() -> int:
    """Fetch what can be; say what cannot."""
    status = 0
    for fetch in EVERY_RUN + (FOREIGN if "--all" in sys.argv[1:] else ()):
        try:
            fetch()
        except ERRORS as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
