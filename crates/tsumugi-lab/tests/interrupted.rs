//! A lab whose making ends at any point, or whose record is damaged, can be removed completely.

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use support::{assert_gone, role, traces};
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, LabError, Spec, Wire, down};

/// Every step does something in one of these labs.
fn spec(stem: &str, wire: Wire) -> Spec {
    let rate = (wire == Wire::Switch).then(|| "1gbit".parse().expect("a rate"));
    Spec { nodes: 3, nics: 2, rate, offloads: false, wire: Some(wire), ..Spec::unique(stem) }
}

/// The labs that are made, by their wires. The second needs the switch's program.
fn wires() -> Vec<Wire> {
    let with_program = tsumugi_rail::xdp::IS_COMPILED.then_some(Wire::XdpSwitch);
    [Wire::Switch].into_iter().chain(with_program).collect()
}

/// How many steps making one takes.
const STEPS: usize = 14;

/// Makes a lab and is killed before a given step.
#[test]
#[ignore = "a role that other tests play"]
fn make_and_die() {
    let setting = |name: &str| std::env::var(name).expect("a setting is given");
    let fatal: usize = setting("DIE_BEFORE").parse().expect("a number");
    let mut count = 0;
    let wire = wires()[setting("WIRE").parse::<usize>().expect("a number")];
    let made = Lab::up_watched(&Spec { name: setting("NAME"), ..spec("x", wire) }, &mut |_| {
        if count == fatal {
            // Only SIGKILL gives no chance to clean up.
            let pid = std::process::id().to_string();
            let killed = std::process::Command::new("/bin/sh").args(["-c", "kill -9 $0", &pid]).status();
            panic!("survived: {killed:?}");
        }
        count += 1;
        true
    });
    made.expect("the lab is made");
}

#[test]
fn killed_before_any_step() {
    let Some(_watched) = as_root("killed_before_any_step", None) else { return };
    for ((at, wire), step) in
        wires().into_iter().enumerate().flat_map(|wire| (0..STEPS).map(move |step| (wire, step)))
    {
        let name = Spec::unique("killed").name;
        let settings = [("NAME", name.clone()), ("DIE_BEFORE", step.to_string()), ("WIRE", at.to_string())];
        let died = role(None, "make_and_die", &settings).output().expect("it starts");
        let context = format!("{wire}, step {step}");
        assert_eq!(died.status.signal(), Some(9), "{context}: {}", String::from_utf8_lossy(&died.stderr));
        assert!(!traces(&name).is_empty(), "{context}: the intent is on record before anything is made");
        assert!(Lab::list().contains(&name));
        assert!(matches!(Lab::open(&name), Err(LabError::HalfMade { .. })), "{context}");
        let again = Lab::up(&Spec { name: name.clone(), ..spec("x", wire) });
        assert!(matches!(again, Err(LabError::Exists { half_made: true, .. })), "{context}: {again:?}");
        down(&name).expect("what is left can be removed");
        assert_gone(&name, &format!("after a kill before {context}"));
    }
}

#[test]
fn killed_at_any_moment() {
    let Some(_watched) = as_root("killed_at_any_moment", None) else { return };
    for moment in 0..24 {
        let name = Spec::unique("moment").name;
        let wire = moment as usize % wires().len();
        let settings = [("NAME", name.clone()), ("DIE_BEFORE", "999".into()), ("WIRE", wire.to_string())];
        let mut child = role(None, "make_and_die", &settings).spawn().expect("it starts");
        // Which moment it is does not matter, only that they differ: inside ip, tc, ethtool, between them.
        std::thread::sleep(Duration::from_micros(1500 * moment));
        child.kill().expect("it was ours to kill");
        child.wait().expect("it ended");
        match down(&name) {
            Ok(_) | Err(LabError::NotFound { .. }) => {}
            Err(error) => panic!("moment {moment}: {error}"),
        }
        assert_gone(&name, &format!("after a kill at moment {moment}"));
    }
}

#[test]
fn stopped_before_any_step() {
    let Some(_watched) = as_root("stopped_before_any_step", None) else { return };
    for wire in wires() {
        let mut stop_at = 0;
        loop {
            let spec = spec("stopped", wire);
            let mut count = 0;
            let made = Lab::up_watched(&spec, &mut |_| {
                count += 1;
                count <= stop_at
            });
            match made {
                Err(LabError::Interrupted { .. }) => {
                    assert_gone(&spec.name, &format!("{wire}, stopped at step {stop_at}"))
                }
                other => {
                    other.expect("the lab is made").down().expect("and removed");
                    break assert_gone(&spec.name, "after down");
                }
            }
            stop_at += 1;
        }
        assert_eq!(stop_at, STEPS);
    }
}

#[test]
fn a_damaged_record_is_no_obstacle() {
    let Some(_watched) = as_root("a_damaged_record_is_no_obstacle", None) else { return };
    for damage in ["missing", "cut", "alien"] {
        let lab = Lab::up(&Spec::unique("damaged")).expect("the lab is made");
        let (name, state) = (lab.name().to_owned(), lab.folder().join("state.json"));
        match damage {
            "missing" => fs::remove_file(&state).expect("it was there"),
            "cut" => fs::write(&state, "{\"format\":1,").expect("it can be written"),
            _ => fs::write(&state, "{\"format\":99}").expect("it can be written"),
        }
        assert!(matches!(Lab::open(&name), Err(LabError::HalfMade { .. })), "{damage}");
        down(&name).expect("it can be removed");
        assert_gone(&name, damage);
    }
}

#[test]
fn namespaces_alone_are_enough_to_go_by() {
    let Some(_watched) = as_root("namespaces_alone_are_enough_to_go_by", None) else { return };
    let name = Spec::unique("alone").name;
    let add = |netns: &str| {
        let added = std::process::Command::new("ip").args(["netns", "add", netns]).status();
        assert!(added.expect("ip runs").success());
    };
    add(&format!("tsu-{name}-n0"));
    // A lab of its own, although its name begins with the other's.
    add(&format!("tsu-{name}-n1-n0"));
    // ip was killed between making the file and mounting the namespace on it.
    fs::write(format!("/run/netns/tsu-{name}-n1"), "").expect("it can be written");
    assert_eq!(down(&name).expect("it can be removed").namespaces, 2);
    assert_eq!(traces(&name).len(), 2, "namespace and mount of the other lab stay");
    down(&format!("{name}-n1")).expect("it can be removed");
    assert_gone(&name, "after down");
}
