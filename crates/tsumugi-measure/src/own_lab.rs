//! Measurements that make a lab of their own: made, measured in, and gone again however they end.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tsumugi_lab::child::{ChildError, Running};
use tsumugi_lab::interrupt::interrupted;
use tsumugi_lab::{Lab, LabError, LabGuard, Spec};
use tsumugi_rail::switch::Hook;

use crate::output::{self, EXIT_INTERRUPTED, Shown};

/// The NIC of each node.
pub(crate) const NIC: &str = "nic0";
/// How long anything but a measurement may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no table.
#[derive(Debug, Error)]
pub(crate) enum OwnLabError {
    #[error("interrupted")]
    Interrupted,
    #[error("only root can make the lab and attach the program: `sudo tsumugi perf {0}`")]
    NotRoot(&'static str),
    #[error("cannot make a lab to measure in: {0}")]
    Lab(#[from] LabError),
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("`{0}` printed no {1}")]
    NoFigure(String, &'static str),
    #[error("the target says '{0}' instead of where its window is")]
    Target(String),
    #[error("cannot stop the target: {0}")]
    Stop(std::io::Error),
}

/// Prints what was measured: an object for programs, or the table for people.
pub(crate) fn finish<T: Serialize>(
    measured: Result<T, OwnLabError>,
    shown: Shown,
    show: impl FnOnce(&T) -> String,
) -> crate::CommandResult {
    match measured {
        Ok(report) if shown.json => output::line(serde_json::to_string(&report)?)?,
        Ok(report) => output::line(show(&report))?,
        Err(OwnLabError::Interrupted | OwnLabError::Child(ChildError::Interrupted)) => {
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails for whoever is not root. `command` is what comes behind `tsumugi perf`.
pub(crate) fn require_root(command: &'static str) -> Result<(), OwnLabError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(OwnLabError::NotRoot(command)) }
}

/// A lab that is gone when this is dropped.
pub(crate) fn make(spec: &Spec) -> Result<LabGuard, OwnLabError> {
    match Lab::up_watched(spec, &mut |_| !interrupted()) {
        Ok(lab) => Ok(lab.guarded()),
        Err(_) if interrupted() => Err(OwnLabError::Interrupted),
        Err(error) => Err(error.into()),
    }
}

/// Runs this program in a node, for as long as that takes.
pub(crate) fn tool<T: Display>(lab: &Lab, node: usize, arguments: &[T]) -> Result<(), ChildError> {
    let arguments: Vec<String> = arguments.iter().map(T::to_string).collect();
    Running::ours(Some((lab, node)), &arguments)?.output(PATIENCE)?;
    Ok(())
}

/// Runs `tsumugi switch` in the box of a lab.
pub(crate) fn switch(lab: &Lab, arguments: &[&str]) -> Result<Vec<u8>, OwnLabError> {
    let shown = format!("tsumugi switch {}", arguments.join(" "));
    let spawn = |cause| ChildError::Spawn { command: shown.clone(), cause };
    let program = std::env::current_exe().map_err(spawn)?;
    let mut command = lab.switch_command(program)?;
    command.arg("switch").args(arguments);
    Ok(Running::start(command, shown)?.output(PATIENCE)?)
}

/// Puts the program on the box's ports; returns where it runs.
pub(crate) fn switch_up(lab: &Lab, hook: Option<Hook>) -> Result<String, OwnLabError> {
    #[derive(Deserialize)]
    struct Box {
        ports: Vec<Port>,
    }
    #[derive(Deserialize)]
    struct Port {
        hook: String,
    }
    let ports: Vec<String> = (0..lab.nodes().len()).map(|node| format!("n{node}-{NIC}")).collect();
    let hook = hook.map(|hook| hook.to_string());
    let mut arguments = vec!["up", "--json"];
    arguments.extend(ports.iter().map(String::as_str));
    arguments.extend(hook.iter().flat_map(|hook| ["--hook", hook.as_str()]));
    let said: Option<Box> = serde_json::from_slice(&switch(lab, &arguments)?).ok();
    let hook = said.and_then(|said| said.ports.into_iter().next()).map(|port| port.hook);
    hook.ok_or_else(|| OwnLabError::NoFigure("tsumugi switch up --json".to_owned(), "hook"))
}

/// Has a node's NIC leave nothing to the wire, as a program in the driver of a veth needs it, and take what such a program sends.
pub(crate) fn settle_for_native(lab: &Lab, node: usize) -> Result<(), OwnLabError> {
    let settings = ["-K", NIC, "tx", "off", "txvlan", "off", "gro", "on"];
    let mut told = lab.command(node, "ethtool")?;
    told.args(settings);
    Running::start(told, format!("ethtool {}", settings.join(" ")))?.output(PATIENCE)?;
    Ok(())
}
