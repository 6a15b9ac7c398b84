// What a page knows of its session. All tabs of a browser share one session: the cookie.

export interface Session {
  signedIn: boolean
  auth: boolean
  version: string
  name?: string
  scopes?: string[]
  messageCodes?: string[] | null
  csrf?: string
}

/** Equal for two sessions of keys that have the same name and the same rights. */
export const keyOf = ({ name, scopes, messageCodes }: Session): string =>
  JSON.stringify([name, scopes, messageCodes])

/**
 * The session of a page after it was read again. The key of a session that has ended is kept, so that the page can go on after a
 * sign-in with the same key. An equal session stays the same object.
 */
export function sessionAfter(before: Session, read: Session): Session {
  const after = read.signedIn ? read : { ...before, ...read }
  return JSON.stringify(after) === JSON.stringify(before) ? before : after
}
