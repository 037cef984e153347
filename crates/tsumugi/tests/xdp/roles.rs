//! What other processes do.

mod endpoint;
mod forking;
mod root;
mod strangers;
mod windows;

/// Plays a role, given as its name and its parameters.
pub(crate) fn play(role: &str) {
    let (name, rest) = role.split_once(' ').unwrap_or((role, ""));
    let settings = Settings(rest.split(' ').filter(|word| !word.is_empty()).collect());
    match name {
        "endpoint" => endpoint::play(&settings),
        "echo" => forking::echo(&settings),
        "forks" => forking::forks(&settings),
        "descriptors" => forking::descriptors(&settings),
        "leaves_a_child" => forking::leaves_a_child(&settings),
        "next_owner" => forking::next_owner(&settings),
        "interrupted" => forking::interrupted(&settings),
        "two_endpoints" => forking::two_endpoints(&settings),
        "up" => root::up(&settings),
        "up_for_ever" => root::up_for_ever(&settings),
        "down" => root::down(),
        "detach" => root::detach(),
        "status" => root::status(),
        "again_and_again" => root::again_and_again(&settings),
        "map_memory" => root::map_memory(&settings),
        "look_into_memory" => root::look_into_memory(&settings),
        "tcp_echo" => strangers::tcp_echo(&settings),
        "tcp_talk" => strangers::tcp_talk(&settings),
        "attack" => strangers::attack(&settings),
        other => panic!("no role is called '{other}'"),
    }
}

/// A role's parameters, as `name=value`.
pub(crate) struct Settings<'a>(Vec<&'a str>);

impl Settings<'_> {
    /// The value called `name`, if it is given.
    fn get<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let mut pairs = self.0.iter().filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(have, _)| *have == name)?;
        Some(value.parse().ok().unwrap_or_else(|| panic!("'{value}' is no value for {name}")))
    }
}
