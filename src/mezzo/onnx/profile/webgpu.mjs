// Runs an ONNX model in ONNX Runtime Web on WebGPU; started by webgpu.py.
//
//     node webgpu.mjs MODULES MODEL FOLDER
//
// MODULES: a folder with node_modules. Requests and replies are lines of JSON on stdin and stdout. The first reply has
// the model's inputs. A request names its feeds, input -> [type, dims, file in FOLDER], and the reply its answers
// likewise; their files begin with the request's `answers`. Errors are replies too, and end the process.

import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

// Libraries print to the console; stdout is for replies.
const reply = process.stdout.write.bind(process.stdout);
for (const method of ["log", "info", "debug", "warn"]) {
  console[method] = console.error;
}
const say = (answer, ...then) => reply(JSON.stringify(answer) + "\n", ...then);
for (const fault of ["uncaughtException", "unhandledRejection"]) {
  process.on(fault, (error) => say({ error: `${error?.message ?? error}` }, () => process.exit(1)));
}
delete globalThis.fetch; // nothing is read from a network
const [modules, model, folder] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(path.join(modules, "node_modules", file)));
const { create, globals } = await load("webgpu/index.js");
Object.assign(globalThis, globals);
const navigator = { gpu: create(["enable-dawn-features=allow_unsafe_apis"]), hardwareConcurrency: 1, userAgent: "node" };
Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });

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
  float32: Float32Array, float16: globalThis.Float16Array ?? Uint16Array, float64: Float64Array,
  int64: BigInt64Array, int32: Int32Array, int16: Int16Array, int8: Int8Array,
  uint64: BigUint64Array, uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array, bool: Uint8Array,
};
const external = fs.existsSync(`${model}.data`)
  ? [{ path: `${path.basename(model)}.data`, data: fs.readFileSync(`${model}.data`) }]
  : [];
const session = await ort.InferenceSession.create(fs.readFileSync(model), {
  executionProviders: ["webgpu"],
  externalData: external,
});
say({ inputs: session.inputNames });

for await (const line of readline.createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const feeds = {};
  for (const [name, [type, dims, file]] of Object.entries(request.feeds)) {
    if (!(type in VIEWS)) {
      throw new Error(`input ${JSON.stringify(name)}: ONNX Runtime Web takes no ${type}`);
    }
    const bytes = new Uint8Array(fs.readFileSync(path.join(folder, file)));
    feeds[name] = new ort.Tensor(type, new VIEWS[type](bytes.buffer), dims);
  }
  const answers = {};
  for (const [number, [name, tensor]] of Object.entries(await session.run(feeds)).entries()) {
    const data = await tensor.getData();
    if (!(tensor.type in VIEWS)) {
      throw new Error(`output ${JSON.stringify(name)}: ONNX Runtime Web gives ${tensor.type}, which mezzo does not read`);
    }
    const file = `${request.answers}.${number}`;
    fs.writeFileSync(path.join(folder, file), new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    answers[name] = [tensor.type, tensor.dims, file];
  }
  say({ answers });
}
process.exit(0);
