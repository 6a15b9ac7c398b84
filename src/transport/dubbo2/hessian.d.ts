/** What we use of it. */
declare module 'hessian.js' {
  class EncoderV2 {
    write(value: unknown): void
    get(): Buffer
    _checkRef(object: unknown): boolean
  }
  class DecoderV2 {
    constructor(bytes: Buffer)
    read(): unknown
    _addRef(object: unknown): unknown
  }
}
