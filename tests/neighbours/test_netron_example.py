"""Netron, served from its Python package, shows results of mezzo with their types."""

import pytest
from neighbours import REMEDY, example

import mezzo

# Netron takes a while to lay a graph out on a busy machine.
PATIENCE_MS = 30_000


@pytest.fixture
def show(launch):
    """Open a model in Netron; gives the page. Requests that leave this machine fail, as they do without a network."""
    netron = pytest.importorskip("netron", reason=f"needs the Python package netron: {REMEDY}")
    served = []

    def open_page(path):
        host, port = netron.start(str(path), address=("127.0.0.1", 0), browse=False)
        served.append((host, port))
        page = launch().new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(PATIENCE_MS)
        here = f"http://{host}:{port}/"
        page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(here) else route.abort())
        page.goto(here)
        # Netron wants to know the country of its reader; where it cannot, it asks for consent.
        page.locator("#message-button").click()
        return page

    yield open_page
    for address in served:
        netron.stop(address)


def properties_of(page, node):
    """The text of a node's properties, everything in them unfolded."""
    page.locator(f'[id="node-name-{node}"] .node-item').first.click()
    sidebar = page.locator("#sidebar-content")
    sidebar.get_by_text(node, exact=True).first.wait_for()
    for fold in sidebar.locator(".sidebar-item-value-expander").all():
        if fold.inner_text() == "+":
            fold.click()
    return sidebar.inner_text()


@pytest.mark.parametrize(("to", "spelled"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_types_of_weights_values_and_casts_are_shown(tmp_path, show, to, spelled):
    mezzo.convert(example("shared/judging.py").DIGITS, tmp_path / "typed.onnx", to=to)
    page = show(tmp_path / "typed.onnx")
    convolution = properties_of(page, "/stem/Conv")
    assert f"tensor: {spelled}[32,1,3,3]" in convolution
    relu = properties_of(page, "/block/Relu")
    assert relu.count(f"tensor: {spelled}[batch,32,8,8]") == 2
    cast = properties_of(page, f"image_{'f16' if to == 'fp16' else 'bf16'}_cast")
    assert "tensor: float32[batch,1,8,8]" in cast
    assert f"\n{spelled}\ntype: DataType" in cast


def test_every_node_is_drawn(tmp_path, show):
    result = mezzo.convert(example("shared/judging.py").DIGITS, tmp_path / "typed.onnx", to="fp16")
    page = show(tmp_path / "typed.onnx")
    page.locator('[id="node-name-/stem/Conv"]').wait_for()
    drawn = {node.get_attribute("id").removeprefix("node-name-") for node in page.locator("[id^='node-name-']").all()}
    assert {node.name for node in result.plan.nodes if node.kind == "op"} <= drawn
