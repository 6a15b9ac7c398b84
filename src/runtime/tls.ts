// Which errors of a connection are of TLS, by their codes: https://nodejs.org/api/tls.html#x509-certificate-error-codes

const certificate = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_DECRYPT_CERT_SIGNATURE',
  'UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'PATH_LENGTH_EXCEEDED',
  'HOSTNAME_MISMATCH',
  'ERROR_IN_CERT_NOT_BEFORE_FIELD',
  'ERROR_IN_CERT_NOT_AFTER_FIELD',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'ERR_TLS_CERT_ALTNAME_FORMAT'
])

/** The other side's certificate is not accepted. */
export const isCertificateError = (code: string): boolean =>
  certificate.has(code) || code.startsWith('CERT_') || code.startsWith('CRL_')

/** The name of a host for SNI and certificates: without the dot that may end it (RFC 6066, section 3). */
export const tlsName = (host: string): string => host.replace(/\.$/, '')

/**
 * The other side refuses the handshake, perhaps because it demands a certificate of the client. Under TLS 1.3 it says so when the
 * handshake is complete on our side, and the request is written.
 */
export const isHandshakeAlert = (code: string): boolean =>
  /_ALERT_(?:\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE)$/.test(code)

/** The certificate, or the handshake. */
export const isTlsError = (code: string): boolean =>
  isCertificateError(code) || code === 'EPROTO' || code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_')
