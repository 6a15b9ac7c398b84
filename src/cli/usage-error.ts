/** A command line that cannot be carried out. The message says what to do instead; ackbox.ts prints it and exits with 1. */
export class UsageError extends Error {}

/** An unknown option or a missing value, from `parseArgs`. ackbox.ts adds the help of the command. */
export const isParseError = (err: unknown): err is TypeError =>
  err instanceof TypeError && 'code' in err && String(err.code).startsWith('ERR_PARSE_ARGS')
