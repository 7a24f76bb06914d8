import { call } from "./server.js";

export const model = { name: undefined, contextLength: null, defaults: {} };

export async function learnModel() {
  const { data } = await (await call("/v1/models")).json();
  const { id, max_model_len, default_sampling_params } = data[0];
  model.name = id;
  model.contextLength = max_model_len ?? null;
  model.defaults = default_sampling_params ?? {};
}
