/** `fix`: a promise is broken, or nothing runs. `warn`: it works, with a drawback. */
export interface Finding {
  level: 'ok' | 'warn' | 'fix'
  found: string
  remedy?: string
}

export const ok = (found: string): Finding => ({ level: 'ok', found })
export const warn = (found: string, remedy: string): Finding => ({ level: 'warn', found, remedy })
export const fix = (found: string, remedy: string): Finding => ({ level: 'fix', found, remedy })
