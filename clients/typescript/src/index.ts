/**
 * Client of streamy-db: transactions, functions as transactions, changes.
 *
 *     const client = connect("http://127.0.0.1:8080");
 *     await client.put("greeting", "hello");
 */

export { Atomic, Client, connect, type ConnectOptions, type TransactionOptions } from "./client.js";
export {
  type AbortCode,
  AbortedError,
  CheckFailedError,
  ClientError,
  ClosedError,
  ConflictError,
  ConnectionLostError,
  ConstraintViolatedError,
  DeadlinePassedError,
  type FailedCheck,
  NotConnectedError,
  OtherGenerationError,
  OutcomeUnknownError,
  type ProblemType,
  RequestError,
  SnapshotGoneError,
  UnexpectedAnswerError,
  UnsafeScanError,
} from "./errors.js";
export type { JsonCodec } from "./http.js";
export type { View } from "./run.js";
export type { Options, Session, Surroundings } from "./session.js";
export type { Prepared } from "./transactions.js";
export type * from "./types.js";
export type { Watch } from "./watch.js";
