/** A delivery that has ended, as a terminal shows it. */
export interface EndedDelivery {
  status: string
  taskNo: string
  downstream: string
  attempt: number
  ms?: number
  by?: string
}

/** The methods of a logger that the service uses. pino has them. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
  /** Whether lines of this level are written. Without it every line is passed on. */
  isLevelEnabled?(level: 'debug'): boolean
  /** Only on a terminal: shows a delivery whose own event is below the level. */
  ended?(delivery: EndedDelivery): void
}

/** What fails again and again is logged at its 1st, 10th, 100th … try. */
export const isPowerOfTen = (tries: number): boolean => /^10*$/.test(String(tries))
