"""A small encoder and decoder as Optimum exports them: with a cache, without, and both merged under an If."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

WIDTH, WORDS = 32, 64

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
_ENCODER = """
encoder (int64[B,S] input_ids) => (float[B,S,WIDTH] last_hidden_state)
{
   [emb] e = Gather(table, input_ids)
   [mm] h = MatMul(e, w_enc)
   [act] last_hidden_state = Tanh(h)
}
"""
# Queries, keys and values of one head; {source} is what is attended to.
_STEP = """
   {t}e = Gather(table, input_ids)
   {t}q = MatMul({t}e, wq)
   {t}k = MatMul({t}e, wk)
   {t}v = MatMul({t}e, wv)
"""
_ATTEND = """
   {t}kt{n} = Transpose<perm = [0, 2, 1]>({key})
   {t}s{n} = MatMul({query}, {t}kt{n})
   {t}p{n} = Softmax<axis = -1>({t}s{n})
   {t}o{n} = MatMul({t}p{n}, {value})
"""
_FIRST = (
    _STEP
    + """
   {p}ek = MatMul(encoder_hidden_states, wek)
   {p}ev = MatMul(encoder_hidden_states, wev)
   {p}dk = Identity({t}k)
   {p}dv = Identity({t}v)
"""
)
_NEXT = (
    _STEP
    + """
   {p}ek = Identity(past_key_values_0_encoder_key)
   {p}ev = Identity(past_key_values_0_encoder_value)
   {p}dk = Concat<axis = 1>(past_key_values_0_decoder_key, {t}k)
   {p}dv = Concat<axis = 1>(past_key_values_0_decoder_value, {t}v)
"""
)
_LAST = """
   {t}sum = Add({t}o1, {t}o2)
   {t}res = Add({t}sum, {t}e)
   {p}logits = MatMul({t}res, w_out)
"""
_CACHE = [f"0.{part}.{kind}" for part in ("decoder", "encoder") for kind in ("key", "value")]
_RESULTS = ["logits", "dk", "dv", "ek", "ev"]


def _body(text: str, t: str, p: str) -> str:
    attended = _ATTEND.format(t=t, n=1, query=f"{t}q", key=f"{p}dk", value=f"{p}dv")
    attended += _ATTEND.format(t=t, n=2, query=f"{t}q", key=f"{p}ek", value=f"{p}ev")
    return (text + "{attended}" + _LAST).format(t=t, p=p, attended=attended)


def _decoder(kind: str) -> str:
    past = ", ".join(f"float[B,P_{name[2:9]},WIDTH] past_key_values.{name}".replace(".", "_") for name in _CACHE)
    results = ", ".join(f"float[B,T_{name},{WORDS if name == 'logits' else WIDTH}] {name}" for name in _RESULTS)
    hidden = "int64[B,T] input_ids, float[B,S,WIDTH] encoder_hidden_states"
    if kind == "first":
        return f"decoder ({hidden}) => ({results}) {{ {_body(_FIRST, 't_', '')} }}"
    if kind == "next":
        return f"decoder (int64[B,T] input_ids, {past}) => ({results}) {{ {_body(_NEXT, 't_', '')} }}"
    inner = {
        p: ", ".join(f"float[B,{p}T_{n},{WORDS if n == 'logits' else WIDTH}] {p}{n}" for n in _RESULTS)
        for p in ("a_", "b_")
    }
    return f"""decoder ({hidden}, {past}, bool[1] use_cache_branch) => ({results}) {{
   [branch] {", ".join(_RESULTS)} = If(use_cache_branch) <
     then_branch = with_past () => ({inner["a_"]}) {{ {_body(_NEXT, "at_", "a_")} }},
     else_branch = no_past () => ({inner["b_"]}) {{ {_body(_FIRST, "bt_", "b_")} }}
   >
}}"""


def _finish(text: str, weights: tuple[str, ...]) -> onnx.ModelProto:
    """Parse a model, give it its weights and the dots in its names, which the text form has not."""
    model = onnx.parser.parse_model(_HEAD + text.replace("WIDTH", str(WIDTH)))
    random = np.random.default_rng(7)
    shapes = {"table": (WORDS, WIDTH), "w_out": (WIDTH, WORDS)}
    for name in ("table", "w_enc", "wq", "wk", "wv", "wek", "wev", "w_out"):
        array = (random.normal(size=shapes.get(name, (WIDTH, WIDTH))) / WIDTH**0.5).astype(np.float32)
        if name in weights:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    spelled = {f"past_key_values.{name}".replace(".", "_"): f"past_key_values.{name}" for name in _CACHE}
    spelled |= dict(zip(_RESULTS[1:], (f"present.{name}" for name in _CACHE), strict=True))
    _rename(model.graph, spelled)
    return model


def _rename(graph: onnx.GraphProto, spelled: dict[str, str]) -> None:
    for port in (*graph.input, *graph.output):
        port.name = spelled.get(port.name, port.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = spelled.get(name, name)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, spelled)


_SHARED = ("table", "wq", "wk", "wv", "w_out")


def make_seq2seq(folder: Path, *, external: bool = False) -> Path:
    """Write an export: encoder, three decoders, config and tokenizer, models in `onnx/` as on the hub."""
    models = {
        "encoder_model": _finish(_ENCODER, ("table", "w_enc")),
        "decoder_model": _finish(_decoder("first"), (*_SHARED, "wek", "wev")),
        "decoder_with_past_model": _finish(_decoder("next"), _SHARED),
        "decoder_model_merged": _finish(_decoder("merged"), (*_SHARED, "wek", "wev")),
    }
    (folder / "onnx").mkdir(parents=True)
    for name, model in models.items():
        path = folder / "onnx" / f"{name}.onnx"
        onnx.checker.check_model(model, full_check=True)
        options = {"save_as_external_data": True, "location": f"{name}.onnx_data", "size_threshold": 0}
        onnx.save(model, path, **(options if external else {}))
    (folder / "config.json").write_text('{\n  "model_type": "t5",\n  "néz": 1\n}\n', encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}")
    return folder
