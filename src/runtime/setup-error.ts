/** What an operator can mend, one line each: a package that is not installed, a broker that is not set. */
export class SetupError extends Error {
  override name = 'SetupError'
}

/** What `import()` rejects with where a package is not installed. */
export const isMissingPackage = (err: unknown): boolean =>
  err instanceof Error && 'code' in err && err.code === 'ERR_MODULE_NOT_FOUND'
