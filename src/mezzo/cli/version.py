"""mezzo --version: versions of mezzo, Python, dependencies and runtimes, without importing them."""

import typer

from mezzo import __version__


def print_versions(is_wanted: bool) -> None:
    """Print one package per line and exit, if `is_wanted`. Optional packages only if installed."""
    if not is_wanted:
        return
    import platform

    from mezzo.cli.console import print_text
    from mezzo.common.packages import BASE, OPTIONAL, find_installed

    lines = [
        f"mezzo {__version__}",
        f"{platform.python_implementation()} {platform.python_version()}",
    ]
    for package in BASE:
        lines += [f"{name} {version}" for name, version in find_installed(package.name)] or [
            f"{package.name} is not installed; mezzo doctor says what to do"
        ]
    for package in OPTIONAL:
        lines += [f"{name} {version}" for name, version in find_installed(package.name)]
    print_text("\n".join(lines))
    raise typer.Exit()
