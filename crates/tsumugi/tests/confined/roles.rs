//! What other processes do.

use crate::process::{PATIENCE, say};
use tsumugi::{Config, Endpoint};
use tsumugi_rail::xdp::{self, Access, Pins, PoolOptions};

/// Plays a role, given as its name and its settings.
pub(crate) fn play(role: &str) {
    let (name, settings) = role.split_once(' ').unwrap_or((role, ""));
    match name {
        "open" => open(settings),
        "up" => match up(settings) {
            Ok(_) => say("done"),
            Err(error) => say(error),
        },
        "down" => match Pins::here().and_then(|pins| xdp::down(&pins, &[])) {
            Ok(_) => say("done"),
            Err(error) => say(error),
        },
        other => panic!("no role is called '{other}'"),
    }
}

fn setting<'a>(settings: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = settings.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.find(|(have, _)| *have == name).map(|(_, value)| value)
}

fn up(settings: &str) -> Result<Vec<xdp::Attached>, xdp::XdpError> {
    let owner = setting(settings, "owner").map(|owner| owner.parse().expect("a number"));
    let mode = setting(settings, "mode").map_or(0o600, |mode| u32::from_str_radix(mode, 8).expect("a mode"));
    let access = Access { owner, group: owner, mode };
    let options = PoolOptions { endpoints: 1, access, ..PoolOptions::default() };
    xdp::up(&Pins::here()?, &["va".to_owned()], &options)
}

/// Opens an endpoint, confined as the settings say, and sends itself a message. Says what it reports.
fn open(settings: &str) {
    if let Some(user) = setting(settings, "user") {
        become_user(user.parse().expect("a number"));
    }
    setting(settings, "deny").into_iter().flat_map(|list| list.split(',')).for_each(deny);
    let default = Config::default();
    let word = |name| setting(settings, name);
    let config = Config::default()
        .port(word("port").map_or(0, |port| port.parse().expect("a port")))
        .bind(word("bind").map_or(default.bind, |bind| bind.parse().expect("an address")))
        .receive(word("receive").map_or(default.receive, |word| word.parse().expect("a receive path")))
        .send(word("send").map_or(default.send, |word| word.parse().expect("a send path")));
    let endpoint = match Endpoint::open(config) {
        Ok(endpoint) => endpoint,
        Err(error) => return say(format!("refused: {error}")),
    };
    let bound = endpoint.address().ip();
    let own = if bound.is_unspecified() { "127.0.0.1".to_owned() } else { bound.to_string() };
    let peer = endpoint.add_peer(format!("{own}:{}", endpoint.port())).expect("a peer");
    let channel = endpoint.channel(0).expect("it is free");
    channel.send(peer, b"to myself").expect("it is sent");
    let message = channel.receive_timeout(PATIENCE).expect("it arrives");
    assert_eq!(&message[..], b"to myself");
    say("got it");
    say(endpoint.report());
}

fn become_user(user: u32) {
    // SAFETY: an empty list of groups needs no memory.
    assert_eq!(unsafe { libc::setgroups(0, std::ptr::null()) }, 0);
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::setgid(user) }, 0);
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::setuid(user) }, 0);
}

/// Forbids this process something for good, as service managers and container runtimes do (seccomp(2)).
fn deny(what: &str) {
    let socket = |family: i32| (libc::SYS_socket, Some((0, family)), libc::EAFNOSUPPORT);
    let any = |call| (call, None, libc::EPERM);
    let denied = match what {
        "netlink" => vec![socket(libc::AF_NETLINK)],
        "packet" => vec![socket(libc::AF_PACKET)],
        "ipv6" => vec![socket(libc::AF_INET6)],
        "xdp" => vec![socket(libc::AF_XDP)],
        "bpf" => vec![any(libc::SYS_bpf)],
        "membarrier" => vec![any(libc::SYS_membarrier)],
        "epoll" => vec![(libc::SYS_epoll_create1, None, libc::ENOSYS)],
        "interfaces" => vec![any(libc::SYS_ioctl)],
        "offloads" => [libc::UDP_SEGMENT, libc::UDP_GRO]
            .map(|option| (libc::SYS_setsockopt, Some((2, option)), libc::ENOPROTOOPT))
            .to_vec(),
        other => panic!("what is '{other}'?"),
    };
    for (call, argument, error) in denied {
        filter(call, argument, error);
    }
}

/// Has a system call fail: always, or when one of its arguments, by number, has a value.
fn filter(call: libc::c_long, argument: Option<(u32, i32)>, error: i32) {
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let refuse = step(answer, libc::SECCOMP_RET_ERRNO | error as u32, 0);
    let allow = step(answer, libc::SECCOMP_RET_ALLOW, 0);
    // `struct seccomp_data`: the call's number first, its arguments from byte 16 on.
    let mut steps = vec![step(load, 0, 0)];
    match argument {
        None => steps.extend([step(equal, call as u32, 1), refuse, allow]),
        Some((number, value)) => steps.extend([
            step(equal, call as u32, 3),
            step(load, 16 + 8 * number, 0),
            step(equal, value as u32, 1),
            refuse,
            allow,
        ]),
    }
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program is as long as it says, and outlives the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}
