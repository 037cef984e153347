//! What the words of `tsumugi status` mean.

/// Below the options of `status`.
pub(super) const HELP: &str = "\
A line for each NIC that the receive path was put on:

  native          the program runs in the NIC's driver, before the kernel has made anything of a frame
  generic         it runs behind the driver, when the kernel has made a packet of the frame: for drivers that take no program
  set for busy polling   the NIC's poll is left to processes that wait with `busy-poll` (`up --busy-poll`)
  NOT ATTACHED    the NIC is gone, or somebody has taken the program off it: nothing is received through it there

A line for each endpoint that is used or was, and one for those that never were. An endpoint is a UDP port with its memory; its owner, group \
and permissions say who may use it, as for a file:

  in use          a process has it (in JSON: claimed)
  free            the next process that may use it can have it; what it has counted stays

What the program and its process have counted of packets that arrived, if you may look; what is 0 is not shown:

  deposited          taken in
  duplicate          had been taken in before, and were acknowledged again: an acknowledgement was lost or late
  beyond_bitmap      further ahead than may be sent: dropped, and sent again
  out_of_order       overtaken on their way, for a sender that goes back (Go-back-N): dropped, and sent again
  queue_full         there was no room: the process has not received for long; dropped, and the sender waits
  malformed          no packet of this version, or a damaged header: dropped
  corrupt            a damaged body, found by its CRC: dropped, and sent again; look for a bad cable, switch or NIC
  unknown_flow       for a connection that is not there any more: dropped, and the sender is told
  wrong_token        of a former connection, or a stranger's: dropped
  wrong_epoch        of a former process on either side: dropped
  violation          against the rules of the protocol: dropped, or the connection was ended
  handshake_refused  connections that were refused: another job, too many peers, no answer to a challenge
  remote_refused     remote reads and writes that were refused: key, bounds, rights
  direct_writes      remote writes that the program has put in their place itself
  untranslated       remote writes that it has left to the process, for want of a translation of their page (`up --translations`)

Processes are shown with their endpoints of either receive path: your own; root sees all. Counters begin with the endpoint, those of a \
peer and its paths with the connection.

What the program is doing:
  calling     it calls the library, and so makes progress
  asleep      it sleeps in a call until something arrives
  event loop  its event loop watches the endpoint, and there is nothing to do
  computing   it runs and does not call: nothing is sent, and what arrives waits or is taken in by the XDP program
  elsewhere   it waits for something else, and does not call either
  stopped     a signal or a debugger has stopped it

Peers are strange (only the address is known), connecting, connected, leaving, or gone. A path is in use, or silent: it does not \
answer, and is asked from time to time.

What messages wait for:
  xoff        the peer has refused packets: its receive queue was full, because its program does not receive fast enough
  credit      as much is under way as the peer has room for
  congestion  the congestion window of the paths: what is under way is as much as the network carries
  bitmap      as much is under way as a flow may have
  silence     no path to the peer answers
  nic         the queue of the NIC is full
  handshake   the connection is being made
  other       what was lost goes first, or a faster path is waited for

Why packets were sent again:
  overtaken    something that was sent later on the same path has arrived
  timed_out    nothing was acknowledged for a while
  path_silent  the path fell silent while another delivered
  went_back    a Go-back-N receiver missed something before it
  refused      the receiver had no room
  not_taken    the NIC's queue was full
  suspended    the endpoint was suspended meanwhile
  damaged      they had arrived damaged

A line for each NIC that an endpoint sends by (`through ADDRESS`):

  delivered       packets that were acknowledged
  lost            packets found lost, and sent again
  paths           paths from there to peers
  silent          those of them that do not answer, or have not yet, and are not used

Examples:
  tsumugi status                        NICs, endpoints of the XDP receive path, processes with peers and paths
  tsumugi status --watch 2              the processes every 2 s, with rates
  tsumugi status --json | jq '.processes[] | {pid, limit}'
  tsumugi status --prometheus > /var/lib/prometheus/node-exporter/tsumugi.prom
  tsumugi top                           the same on a screen that refreshes";

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi_wire::memory::Counter;

    #[test]
    fn the_help_of_status_explains_every_word_that_it_prints() {
        let states =
            ["native", "generic", "NOT ATTACHED", "in use", "free", "delivered", "lost", "paths", "silent"];
        let endpoint = tsumugi::Endpoint::open(tsumugi::Config::loopback()).expect("an endpoint");
        endpoint.add_peer("127.0.0.1:9").expect("a peer");
        let snapshot = endpoint.snapshot();
        let shown = snapshot.resent.keys().chain(snapshot.peers[0].held_ns.keys()).map(String::as_str);
        for name in Counter::ALL.into_iter().map(|(_, name)| name).chain(states).chain(shown) {
            assert!(HELP.contains(&format!("\n  {name}  ")), "{name}");
        }
    }
}
