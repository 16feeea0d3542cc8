// Made of clients/typescript/src/index.ts (510ea49b5cab4ff539316aa68c4f04bf9de6092b0f794c9206fc79602e824baf): python -m tools.console_client
/**
 * Client of streamy-db: transactions, functions as transactions, changes.
 *
 *     const client = connect("http://127.0.0.1:8080");
 *     await client.put("greeting", "hello");
 */
export { Atomic, Client, connect } from "./client.js";
export { AbortedError, CheckFailedError, ClientError, ClosedError, ConflictError, ConnectionLostError, ConstraintViolatedError, DeadlinePassedError, NotConnectedError, OtherGenerationError, OutcomeUnknownError, RequestError, SnapshotGoneError, UnexpectedAnswerError, UnsafeScanError, } from "./errors.js";
