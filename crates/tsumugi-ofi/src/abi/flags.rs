//! Bits of capabilities, operations, completions and modes: `fi_getinfo(3)`, `fi_endpoint(3)`, `fi_cq(3)`.
//! One bit may mean different things in different places, as [`FI_DIRECTED_RECV`], [`FI_CLAIM`],
//! [`FI_CONTEXT`] and [`FI_SELECTIVE_COMPLETION`] do.

constants! { FLAGS
    /// Capability: messages. Completion: it was one.
    pub const FI_MSG: u64 = 1 << 1;
    /// Capability: remote memory. Completion: it was such an access.
    pub const FI_RMA: u64 = 1 << 2;
    /// Capability: messages with tags. Completion: it was one.
    pub const FI_TAGGED: u64 = 1 << 3;
    /// Capability: atomics on remote memory. Completion: it was one.
    pub const FI_ATOMIC: u64 = 1 << 4;
    /// Capability: multicast.
    pub const FI_MULTICAST: u64 = 1 << 5;
    /// Capability: collectives.
    pub const FI_COLLECTIVE: u64 = 1 << 6;

    /// Capability, registration: reads remote memory, or from here for a read's result.
    pub const FI_READ: u64 = 1 << 8;
    /// Capability, registration: writes remote memory, from here.
    pub const FI_WRITE: u64 = 1 << 9;
    /// Capability, binding, registration: receives.
    pub const FI_RECV: u64 = 1 << 10;
    /// Capability, registration: sends.
    pub const FI_SEND: u64 = 1 << 11;
    /// Binding: all that an endpoint initiates; the same bit as [`FI_SEND`].
    pub const FI_TRANSMIT: u64 = FI_SEND;
    /// Capability, registration: peers may read. Completion: one has, if [`FI_RMA_EVENT`] asks.
    pub const FI_REMOTE_READ: u64 = 1 << 12;
    /// Capability, registration: peers may write. Completion: one has, with data or [`FI_RMA_EVENT`].
    pub const FI_REMOTE_WRITE: u64 = 1 << 13;

    /// Capability, receive: one buffer takes many messages. Completion: the buffer is the caller's again.
    pub const FI_MULTI_RECV: u64 = 1 << 16;
    /// Operation: carries data for the peer's completion. Completion: `data` is valid.
    pub const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
    /// Operation: another follows at once, so that work may be put off till then.
    pub const FI_MORE: u64 = 1 << 18;
    /// Receive: only looks whether a message is there, `fi_tagged(3)`.
    pub const FI_PEEK: u64 = 1 << 19;
    /// Capability, operation: starts when a counter passes a threshold, `fi_trigger(3)`.
    pub const FI_TRIGGER: u64 = 1 << 20;
    /// Capability, operation: waits for all earlier ones to the same peer.
    pub const FI_FENCE: u64 = 1 << 21;

    /// Operation: completes to the queue although that is bound with [`FI_SELECTIVE_COMPLETION`].
    pub const FI_COMPLETION: u64 = 1 << 24;
    /// Address vector: insertions are reported to an event queue; the same bit as [`FI_COMPLETION`].
    pub const FI_EVENT: u64 = FI_COMPLETION;
    /// Operation: the buffer is the caller's again when the call returns.
    pub const FI_INJECT: u64 = 1 << 25;
    /// Operation: completes when the buffer may be used again.
    pub const FI_INJECT_COMPLETE: u64 = 1 << 26;
    /// Operation: completes when this side has nothing more to do; of a reliable endpoint, the peer's has it.
    pub const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
    /// Operation: completes when the peer's memory has the data.
    pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
    /// Queue: `signaling_vector` says where to interrupt.
    pub const FI_AFFINITY: u64 = 1 << 29;
    /// Operation: completes when the data is persistent.
    pub const FI_COMMIT_COMPLETE: u64 = 1 << 30;
    /// Operation: completes when the peer has matched the message with a receive.
    pub const FI_MATCH_COMPLETE: u64 = 1 << 31;

    /// Capability: transfers on behalf of a peer provider, `fi_peer(3)`.
    pub const FI_PEER_TRANSFER: u64 = 1 << 36;
    /// Address vector: completions report an identifier that the caller gave with the address.
    pub const FI_AV_USER_ID: u64 = 1 << 41;
    /// Capability, opening: shares an object with a peer provider.
    pub const FI_PEER: u64 = 1 << 43;
    /// Capability, registration: memory of accelerators.
    pub const FI_HMEM: u64 = 1 << 47;
    /// Capability: persistent memory.
    pub const FI_RMA_PMEM: u64 = 1 << 49;
    /// Capability: the address of an unknown sender comes as an error entry.
    pub const FI_SOURCE_ERR: u64 = 1 << 50;
    /// Capability: peers on this host are reached. If neither this nor [`FI_REMOTE_COMM`] is asked for, both
    /// are.
    pub const FI_LOCAL_COMM: u64 = 1 << 51;
    /// Capability: peers on other hosts are reached.
    pub const FI_REMOTE_COMM: u64 = 1 << 52;
    /// Capability: processes share an address vector by name.
    pub const FI_SHARED_AV: u64 = 1 << 53;
    /// `fi_getinfo`: what the provider is, whatever `node` and `service` say.
    pub const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
    /// `fi_getinfo`: `node` is an address and no name.
    pub const FI_NUMERICHOST: u64 = 1 << 55;
    /// Capability, registration: peers' accesses are counted or reported.
    pub const FI_RMA_EVENT: u64 = 1 << 56;
    /// Capability: completions tell who sent. `fi_getinfo`: `node` and `service` are this side's.
    pub const FI_SOURCE: u64 = 1 << 57;
    /// Capability: operations name a receive context of the peer.
    pub const FI_NAMED_RX_CTX: u64 = 1 << 58;
    /// Capability: a receive takes messages of the peer that it names only.
    pub const FI_DIRECTED_RECV: u64 = 1 << 59;

    /// Tagged receive, with [`FI_PEEK`]: keeps the message for this context. Without: receives what was kept.
    pub const FI_CLAIM: u64 = 1 << 59;
    /// Tagged receive, with [`FI_PEEK`] or [`FI_CLAIM`]: drops the message.
    pub const FI_DISCARD: u64 = 1 << 58;

    /// Binding of a completion queue: only operations with [`FI_COMPLETION`], and errors, come to it.
    pub const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;

    /// Atomic, `fi_query_atomic(3)`: one that fetches.
    pub const FI_FETCH_ATOMIC: u64 = 1 << 58;
    /// Atomic, `fi_query_atomic(3)`: one that compares.
    pub const FI_COMPARE_ATOMIC: u64 = 1 << 59;

    /// Address vector: every process has the same addresses in the same order.
    pub const FI_SYMMETRIC: u64 = 1 << 59;
    /// Insertion: `context` is an array of `int` for an error code per address.
    pub const FI_SYNC_ERR: u64 = 1 << 58;
    /// Set of addresses: everyone in the address vector.
    pub const FI_UNIVERSE: u64 = 1 << 57;
    /// Binding of a domain to an event queue: registrations are reported there.
    pub const FI_REG_MR: u64 = 1 << 59;
    /// Registration: host memory that an accelerator's library has allocated.
    pub const FI_HMEM_HOST_ALLOC: u64 = 1 << 45;
    /// Registration: memory that only the accelerator reaches.
    pub const FI_HMEM_DEVICE_ONLY: u64 = 1 << 46;

    /// Mode: an operation's context points to a [`fi_context`](super::fi_context) for the provider to use.
    pub const FI_CONTEXT: u64 = 1 << 59;
    /// Mode: messages begin with room for the provider's header.
    pub const FI_MSG_PREFIX: u64 = 1 << 58;
    /// Mode: arrays of `iovec` stay until the operation completes.
    pub const FI_ASYNC_IOV: u64 = 1 << 57;
    /// Mode: an operation's data for the completion uses up one of the peer's receives.
    pub const FI_RX_CQ_DATA: u64 = 1 << 56;
    /// Mode: buffers are registered. Of callers before version 1.5; later ones say
    /// [`FI_MR_LOCAL`](super::FI_MR_LOCAL).
    pub const FI_LOCAL_MR: u64 = 1 << 55;
    /// Mode: as [`FI_CONTEXT`] with a [`fi_context2`](super::fi_context2).
    pub const FI_CONTEXT2: u64 = 1 << 52;
}
