// Runs models/<model> on models/<inputs>.json and shows the answers. The query picks both and the execution provider:
//   ?model=digits.fp16.onnx&inputs=digits&provider=wasm
// A model whose weights lie in a file beside it needs that file named: &external=digits.fp16.onnx.data
// The inputs file is {name: {type, dims, data}}. What is shown is also window.result: {device, outputs}, or {device, missing}, or {device, error}.
const query = new URLSearchParams(location.search);
const model = query.get("model") ?? "digits.fp16.onnx";
const inputs = query.get("inputs") ?? "digits";
const provider = query.get("provider") ?? "wasm";
const external = query.get("external");

const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array };

async function run(device) {
  // The WebGPU build is larger, and the one without it is enough for WebAssembly.
  const build = provider === "webgpu" ? "ort.webgpu.min.mjs" : "ort.wasm.min.mjs";
  const ort = await import(`./node_modules/onnxruntime-web/dist/${build}`);
  ort.env.wasm.wasmPaths = new URL("node_modules/onnxruntime-web/dist/", location.href).href;

  const adapter = await navigator.gpu?.requestAdapter();
  Object.assign(device, {
    version: ort.env.versions.web,
    isolated: self.crossOriginIsolated, // without it WebAssembly has one thread
    adapter: adapter ? (adapter.info?.description || adapter.info?.vendor || "unnamed") : null,
    shaderF16: adapter?.features.has("shader-f16") ?? false,
  });
  if (provider === "webgpu" && !adapter) return { missing: "this browser offers no WebGPU adapter" };
  if (provider === "webgpu" && !device.shaderF16) console.warn("the adapter has no shader-f16: FP16 models will not run");

  const session = await ort.InferenceSession.create(`models/${model}`, {
    executionProviders: [provider],
    externalData: external ? [{ path: external, data: `models/${external}` }] : [],
  });
  const described = await (await fetch(`models/${inputs}.json`)).json();
  const feeds = {};
  for (const [name, { type, dims, data }] of Object.entries(described)) {
    const values = type === "int64" ? data.map(BigInt) : data;
    feeds[name] = new ort.Tensor(type, ARRAYS[type].from(values), dims);
  }
  const answers = await session.run(feeds);
  const outputs = {};
  for (const [name, { type, dims, data }] of Object.entries(answers)) {
    outputs[name] = { type, dims, data: Array.from(data, Number) };
  }
  return { outputs };
}

const device = {};
const result = { device, ...(await run(device).catch((error) => ({ error: String(error) }))) };
document.getElementById("said").textContent = JSON.stringify(result, null, 1).slice(0, 20_000);
window.result = result;
