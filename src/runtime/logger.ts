/** What the flow needs of a logger; pino is one. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
  /** Whether a line of this level would be written; a logger that cannot say gets every line. */
  isLevelEnabled?(level: 'debug'): boolean
}
