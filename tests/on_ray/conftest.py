"""Ray is not installed with mezzo: without it these tests are left out."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]
