/** What a handler's `request` returns for dubbo2. */
export interface Dubbo2Request {
  /** Which provider: the name of a broker in the settings, `dubbo2` by default. */
  broker?: string
  /** The interface, `com.acme.Points`. */
  service: string
  method: string
  /** The Java type of each parameter: `java.lang.String`, `long`, `com.acme.Order`. */
  types: readonly string[]
  /** One for each of the types. Objects are maps, whose members Dubbo sets by name; a bigint is a long. */
  args: readonly unknown[]
  version?: string
  group?: string
  /** More attachments. */
  attachments?: Record<string, string>
}
