// Runs an ONNX model on WebGPU under Node.js. benchmarks/webgpu.py calls it; its docstring says what must be installed.
//
//     node webgpu.mjs FOLDER MODULES
//
// FOLDER holds model.onnx and batches.json, a list with one object per call: input name -> [type, dims, file].
// Writes the outputs to FOLDER in the same form, named in answers.json. MODULES: a folder with node_modules.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

for (const fault of ["uncaughtException", "unhandledRejection"]) {
  process.on(fault, (error) => {
    console.error(`error: ${error.message ?? error}`);
    process.exit(1);
  });
}
const [folder, modules] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(path.resolve(modules, "node_modules", file)));
const { create, globals } = await load("webgpu/index.js");
Object.assign(globalThis, globals);
const gpu = create(["enable-dawn-features=allow_unsafe_apis"]);
Object.defineProperty(globalThis, "navigator", { value: { gpu, hardwareConcurrency: 1, userAgent: "node" }, configurable: true });

// Dawn's binding reads a view from the start of its buffer, which for weights is the whole of WebAssembly's memory.
const write = GPUQueue.prototype.writeBuffer;
GPUQueue.prototype.writeBuffer = function (buffer, at, data, start = 0, size = undefined) {
  const unit = data.BYTES_PER_ELEMENT ?? 1;
  const length = size === undefined ? undefined : size * unit;
  const bytes = new Uint8Array(data.buffer ?? data, (data.byteOffset ?? 0) + start * unit, length);
  return write.call(this, buffer, at, Uint8Array.from(bytes));
};

const ort = await load("onnxruntime-web/dist/ort.webgpu.bundle.min.mjs");
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
const VIEWS = {
  float32: Float32Array, float16: Uint16Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array,
  int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
};
const model = path.join(folder, "model.onnx");
const weights = fs.existsSync(`${model}.data`) ? [{ path: "model.onnx.data", data: fs.readFileSync(`${model}.data`) }] : [];
const session = await ort.InferenceSession.create(fs.readFileSync(model), { executionProviders: ["webgpu"], externalData: weights });

const answers = [];
for (const [number, batch] of JSON.parse(fs.readFileSync(path.join(folder, "batches.json"))).entries()) {
  const feeds = {};
  for (const [name, [type, dims, file]] of Object.entries(batch)) {
    const bytes = new Uint8Array(fs.readFileSync(path.join(folder, file)));
    feeds[name] = new ort.Tensor(type, new VIEWS[type](bytes.buffer), dims);
  }
  const answer = {};
  for (const [place, [name, tensor]] of Object.entries(await session.run(feeds)).entries()) {
    const data = await tensor.getData();
    answer[name] = [tensor.type, tensor.dims, `answer.${number}.${place}`];
    fs.writeFileSync(path.join(folder, answer[name][2]), new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
  answers.push(answer);
}
fs.writeFileSync(path.join(folder, "answers.json"), JSON.stringify(answers));
process.exit(0);
