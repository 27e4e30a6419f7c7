/** Keys of PostgreSQL advisory locks. All replicas must use the same ones, so an assigned number never changes its meaning. */
export const Lock = {
  /** Held while the schema is created or migrated. */
  MIGRATION: 5_417_116_322,
  /** Held while the catalog is imported. */
  CATALOG: 5_417_116_323,
  /** Held by the replica that relays events: two relays would mix up their order. */
  EVENT_RELAY: 5_417_116_324,
  /** Held by the replica that sends messages for waiting work: two senders would send some twice. */
  WORK_RELAY: 5_417_116_325,
  /** Held while the master key of this process is compared with those that secrets are sealed under. */
  MASTER_KEYS: 5_417_116_326,
  /** Held by the replica that rolls up the series. */
  ROLLUP: 5_417_116_327,
  /** Held while partitions of the history are made or dropped. */
  PARTITIONS: 5_417_116_328,
  /** Held while requests are archived and folded. */
  ARCHIVE: 5_417_116_329,
} as const;
