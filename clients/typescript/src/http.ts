/** Requests to a facade over `fetch`, and what their failures mean. */

import {
  ClientError,
  ClosedError,
  ConnectionLostError,
  NotConnectedError,
  OtherGenerationError,
  problem,
  UnexpectedAnswerError,
} from "./errors.js";
import type { Json } from "./types.js";

/** Turns values into JSON and back; give your own to keep integers beyond 2^53 exact. */
export interface JsonCodec {
  parse(text: string): any;
  stringify(value: unknown): string;
}

/** A request as it is sent. */
export interface HttpRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly params?: Readonly<Record<string, string | number | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** How long the other side may be silent. */
  readonly timeoutS: number;
  readonly signal?: AbortSignal | undefined;
}

/** An answer that is a success. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Its JSON; throws `UnexpectedAnswerError` if it is none. */
  json(): any;
}

/** How long an answer may be late before the connection counts as dead. */
const MARGIN_S = 5;
const NOT_SENT = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;
const UNTRUSTED = /CERT|SELF_SIGNED|UNABLE_TO_(VERIFY|GET)|ERR_SSL|ERR_TLS/;

const GENERATION = "Streamydb-Generation";

export class Transport {
  readonly #closing = new AbortController();
  readonly #base: string;
  /** The generation of the seqs that this client has, as answers tell it. */
  generation: string | undefined;
  /** Called when the database turns out to be of another generation. */
  onLost: () => void = () => undefined;

  constructor(
    url: string,
    readonly json: JsonCodec,
    private readonly token: string | undefined,
    private readonly fetcher: typeof fetch,
  ) {
    const { protocol, search, hash } = new URL(url);
    if (!/^https?:$/.test(protocol) || search || hash) {
      throw new TypeError("a facade's URL is http://host:port or https://host:port");
    }
    this.#base = url.replace(/\/+$/, "");
  }

  /** End everything that is under way, and refuse what comes later. */
  close(): void {
    this.#closing.abort(new ClosedError("The client is closed."));
  }

  /** Refuse to begin anything when the client is closed. */
  checkOpen(): void {
    this.#closing.signal.throwIfAborted();
  }

  /** Pause, but no longer than the client is open; the next request says that it is closed. */
  async pause(sleep: (signal: AbortSignal) => Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    const closing = this.#closing.signal;
    if (closing.aborted) return;
    signal?.throwIfAborted();
    const ending = new Ending(closing, signal);
    try {
      await sleep(ending.signal);
    } catch (error) {
      signal?.throwIfAborted();
      if (!closing.aborted) throw error;
    } finally {
      ending.end();
    }
  }

  /** Perform a request and read its answer. */
  async send(request: HttpRequest): Promise<HttpAnswer> {
    const silence = new Silence(request.timeoutS + MARGIN_S, this.#closing.signal, request.signal);
    try {
      const answer = await this.#fetched(request, silence);
      const body = await this.#guarded(silence, () => answer.text());
      if (!answer.ok) throw this.#fault(answer, body);
      const json = () => this.#parsed(body, answer.status);
      return { status: answer.status, headers: answer.headers, json };
    } finally {
      silence.end();
    }
  }

  /** Open an event stream; its texts come as they are, until it is cut or the caller stops. */
  async *open(request: HttpRequest): AsyncGenerator<string, void, void> {
    const silence = new Silence(request.timeoutS, this.#closing.signal, request.signal);
    try {
      const answer = await this.#fetched(request, silence);
      if (!answer.ok) throw this.#fault(answer, await this.#guarded(silence, () => answer.text()));
      const reader = answer.body?.getReader();
      const decoder = new TextDecoder();
      yield "";
      while (reader) {
        silence.again();
        const { done, value } = await this.#guarded(silence, () => reader.read());
        if (done) break;
        yield decoder.decode(value, { stream: true });
      }
      throw new ConnectionLostError("The stream of changes has ended.");
    } finally {
      silence.stop();
    }
  }

  /** The error of a problem document; undefined if it is none. */
  problemOf(body: string, retryAfterS: number): ClientError | undefined {
    let fields: unknown;
    try {
      fields = this.json.parse(body);
    } catch {
      return undefined;
    }
    if (typeof fields !== "object" || fields === null || Array.isArray(fields)) return undefined;
    const { type, title: _, status, detail, ...members } = fields as Record<string, Json>;
    const slug = String(type ?? "").replace(/^.*\//, "");
    return problem(slug, Number(status) || 0, String(detail ?? ""), members, retryAfterS);
  }

  async #fetched(request: HttpRequest, silence: Silence): Promise<Response> {
    const url = new URL(this.#base + request.path);
    for (const [name, value] of Object.entries(request.params ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const own = this.generation === undefined ? {} : { [GENERATION]: this.generation };
    const headers: Record<string, string> = { ...request.headers, ...own };
    if (this.token !== undefined) headers["Authorization"] = `Bearer ${this.token}`;
    const body = request.body === undefined ? {} : { body: request.body };
    const init = { method: request.method, headers, signal: silence.signal, ...body };
    const answer = await this.#guarded(silence, () => this.fetcher(url, { ...init, cache: "no-store" }));
    if (answer.ok) this.generation ??= answer.headers.get(GENERATION) ?? undefined;
    return answer;
  }

  /** Forget the generation, and all that is of it. */
  #lose(): void {
    this.generation = undefined;
    this.onLost();
  }

  /** Do one thing on the network; its failures become the client's errors. */
  async #guarded<T>(silence: Silence, act: () => Promise<T>): Promise<T> {
    silence.check();
    try {
      return await act();
    } catch (error) {
      if (this.#closing.signal.aborted) throw new ConnectionLostError("The client was closed meanwhile.");
      silence.check();
      throw connectionFault(error);
    }
  }

  #parsed(body: string, status: number): any {
    try {
      return this.json.parse(body);
    } catch {
      throw new UnexpectedAnswerError("The answer is not one of a facade.", status);
    }
  }

  #fault(answer: Response, body: string): ClientError {
    const kind = (answer.headers.get("content-type") ?? "").split(";")[0]?.trim();
    const known = kind === "application/problem+json" ? this.problemOf(body, retryAfter(answer)) : undefined;
    if (known instanceof OtherGenerationError) this.#lose();
    if (known) return known;
    const said = `Status ${answer.status} and no problem document: is this the address of a facade?`;
    const error = new UnexpectedAnswerError(said, answer.status);
    error.retryAfterS = retryAfter(answer);
    return error;
  }
}

/** Ends what waits when the caller gives up or the client is closed; watches them until `end`. */
class Ending {
  readonly #ending = new AbortController();
  readonly #sources: AbortSignal[];

  constructor(...sources: (AbortSignal | undefined)[]) {
    this.#sources = sources.filter((source) => source !== undefined);
    for (const source of this.#sources) source.addEventListener("abort", this.#stop);
  }

  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Throw why there is nothing more to wait for, if so. */
  check(): void {
    for (const source of this.#sources) source.throwIfAborted();
  }

  /** Watch no longer. */
  end(): void {
    for (const source of this.#sources) source.removeEventListener("abort", this.#stop);
  }

  /** Watch no longer, and end what waits. */
  stop(): void {
    this.end();
    this.#ending.abort();
  }

  readonly #stop = () => this.stop();
}

/** Ends a request when the other side is silent, too. */
class Silence extends Ending {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #late = false;

  constructor(
    private readonly seconds: number,
    ...sources: (AbortSignal | undefined)[]
  ) {
    super(...sources);
    this.again();
  }

  /** Begin to wait anew. */
  again(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => {
        this.#late = true;
        this.stop();
      },
      Math.min(this.seconds * 1_000, 2 ** 31 - 1),
    );
  }

  override check(): void {
    super.check();
    if (this.#late) throw new ConnectionLostError(`No answer within ${this.seconds} s`);
  }

  override end(): void {
    clearTimeout(this.#timer);
    super.end();
  }
}

/** What a failure of `fetch` means. A browser does not tell whether anything was sent. */
function connectionFault(error: unknown): ClientError {
  if (error instanceof ClientError) return error;
  const cause = (error as { cause?: { code?: unknown } } | undefined)?.cause;
  const code = String(cause?.code ?? "");
  const said = `${String(error)}${code && ` (${code})`}`;
  if (UNTRUSTED.test(code)) {
    const detail = `TLS with the facade failed: ${said}`;
    return new NotConnectedError(detail, { retriable: false, cause: error });
  }
  if (NOT_SENT.test(code)) {
    return new NotConnectedError(`No connection to the facade: ${said}`, { cause: error });
  }
  const lost = new ConnectionLostError(`The connection broke: ${said}`);
  lost.cause = error;
  return lost;
}

/** The seconds that an answer asks for; a time of day counts from the answer's own. */
function retryAfter(answer: Response): number {
  const given = answer.headers.get("retry-after") ?? "";
  if (/^[0-9]+$/.test(given)) return Number(given);
  const until = Date.parse(given) - Date.parse(answer.headers.get("date") ?? "");
  return Number.isNaN(until) ? 0 : Math.max(0, until / 1_000);
}
