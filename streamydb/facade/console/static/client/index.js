// Made of clients/typescript/src/index.ts (8e8ec2be01403aa80580f93db13fa339fdf5bdea45912cb472a5a78b3134ded1): python -m tools.console_client
/**
 * Client of streamy-db: transactions, functions as transactions, changes.
 *
 *     const client = connect("http://127.0.0.1:8080");
 *     await client.put("greeting", "hello");
 */
export { Atomic, Client, connect } from "./client.js";
export { AbortedError, CheckFailedError, ClientError, ClosedError, ConflictError, ConnectionLostError, ConstraintViolatedError, DeadlinePassedError, NotConnectedError, OutcomeUnknownError, RequestError, SnapshotGoneError, UnexpectedAnswerError, UnsafeScanError, } from "./errors.js";
