/** The service's answers, or the trouble it names. */

export class Trouble extends Error {
  /**
   * @param {string} code one of the service's, or "gone" when nothing answers
   * @param {string} message
   * @param {string[]} near names like the one that is not known
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
  let response, said;
  try {
    response = await fetch(`${path}?${query}`, { signal, headers: { accept: "application/json" } });
    said = await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (response) throw new Trouble("broken", `${path} gave no JSON (status ${response.status}).`);
    throw new Trouble("gone", "The service does not answer. Is `allneg explore` still running?");
  }
  if (response.ok) return said;
  const { code = "broken", message = `status ${response.status}`, near = [] } = said.error ?? {};
  throw new Trouble(code, message, near);
}
