/** Requests to the service: its answers, or its errors. */

export class ServiceError extends Error {
  /**
   * @param {string} code a code of the service, or "gone" if it does not respond
   * @param {string} message
   * @param {string[]} near names similar to the unknown one
   */
  constructor(code, message, near = []) {
    super(message);
    this.code = code;
    this.near = near;
  }
}

/**
 * `get("/v1/predict", { model, head, relation }, signal)`
 * @param {string} path
 * @param {Record<string, any>} parameters those without a value are left out
 * @param {AbortSignal} [signal]
 */
export async function get(path, parameters = {}, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  let response, data;
  try {
    response = await fetch(`${path}?${query}`, { signal, headers: { accept: "application/json" } });
    data = await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (response) throw new ServiceError("broken", `${path} gave no JSON (status ${response.status}).`);
    throw new ServiceError("gone", "The service does not answer. Is `allneg explore` still running?");
  }
  // Labels have names as keys, such as "constructor".
  if (data.labels) Object.setPrototypeOf(data.labels, null);
  if (response.ok) return data;
  const { code = "broken", message = `status ${response.status}`, near = [] } = data.error ?? {};
  throw new ServiceError(code, message, near);
}
