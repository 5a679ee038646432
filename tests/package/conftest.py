"""The wheel and the sdist, built once for all tests of this folder."""

import pytest
from building import Built, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))
