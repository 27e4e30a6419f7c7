"""The version of this package: the gateway's, the TypeScript client's and this one's are one."""

VERSION = "0.1.0"
