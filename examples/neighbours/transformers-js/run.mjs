// Embeds sentences with transformers.js from a local folder, and prints {dtype, dims, data} as JSON.
//   node run.mjs FOLDER [fp16|fp32] [cpu|webgpu]
// dtype "fp16" is what picks onnx/model_fp16.onnx. That weights are in onnx/model_fp16.onnx_data, config.json says.
import path from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const [folder, dtype = "fp16", device = "cpu"] = process.argv.slice(2);
const TEXTS = ["the model runs in half precision", "softmax keeps the norm .", "a small one"];

env.allowRemoteModels = false;
env.localModelPath = path.dirname(path.resolve(folder)) + path.sep;

const embed = await pipeline("feature-extraction", path.basename(path.resolve(folder)), { dtype, device });
const states = await embed(TEXTS, { pooling: "mean" });
console.log(JSON.stringify({ dtype: states.type, dims: states.dims, data: Array.from(states.data) }));
