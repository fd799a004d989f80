// Questions to the server of `regard play`, behind its token. A newer question of the same kind replaces an older one.

const open = new Map();

// The answer of /api/name, or null if a newer question came; an Error says what the server said.
export async function ask(token, name, body) {
  open.get(name)?.abort();
  const control = new AbortController();
  open.set(name, control);
  try {
    const response = await fetch(`/api/${name}`, {
      method: "POST", body: JSON.stringify(body), signal: control.signal,
      headers: { "content-type": "application/json", "x-regard-token": token },
    });
    const answer = await response.json();
    if (open.get(name) !== control) return null;
    if (!response.ok) throw new Error(answer.error ?? `the server said ${response.status}`);
    return answer;
  } catch (error) {
    if (error.name === "AbortError" || open.get(name) !== control) return null;
    throw error instanceof TypeError ? new Error("the server does not answer; is regard play still running?") : error;
  }
}
