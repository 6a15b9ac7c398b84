/** The message of what was thrown. It never throws: a work, or a `toJSON`, may throw any value. */
export function messageOf(err: unknown): string {
  try {
    const { message } = err as { message?: unknown }
    if (typeof message === 'string' && message !== '') return message
    return String(err)
  } catch {
    return 'a value without a text'
  }
}
