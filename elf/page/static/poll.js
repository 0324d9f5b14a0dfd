// Ask again and again while somebody sees the page.

/** `look` every so many seconds until `signal`; one that fails is told, and the next comes none the less. */
export async function poll(look, seconds, { signal, tell }) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await look();
        tell("");
      } catch (error) {
        if (signal.aborted || error.name === "AbortError") return;
        if (error.status === 401) throw error;
        tell(error.message);
      }
    }
    await new Promise((done) => setTimeout(done, seconds * 1000));
  }
}
