import { isIP } from 'node:net'

const protocol = '(?:TCP|UDP|SCTP)'
const links: [name: RegExp, value: (text: string) => boolean][] = [
  [/_SERVICE_HOST$/, text => isIP(text) !== 0],
  [/_SERVICE_PORT(?:_[A-Z0-9_]+)?$/, text => /^\d{1,5}$/.test(text)],
  [new RegExp(`_PORT(?:_\\d+_${protocol})?$`), text => /^(?:tcp|udp|sctp):\/\//.test(text)],
  [new RegExp(`_PORT_\\d+_${protocol}_PROTO$`), text => /^(?:tcp|udp|sctp)$/.test(text)],
  [new RegExp(`_PORT_\\d+_${protocol}_PORT$`), text => /^\d{1,5}$/.test(text)],
  [new RegExp(`_PORT_\\d+_${protocol}_ADDR$`), text => isIP(text) !== 0]
]

/**
 * True for a variable that Kubernetes sets in each pod for each Service of its namespace: a Service `broker` makes BROKER_PORT.
 * https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
 */
export const isServiceLink = (name: string, value: string): boolean =>
  links.some(([form, fits]) => form.test(name) && fits(value))
