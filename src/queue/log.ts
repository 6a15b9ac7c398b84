/** What the queue says of itself; any logger of the house fits. */
export interface QueueLog {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}
