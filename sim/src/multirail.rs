//! Hosts with several NICs: [`check`] says what must hold beside everything else, [`follow`] whether packets go where the
//! policy says.

pub(crate) mod check;
pub(crate) mod follow;

use crate::host::Host;
use tsumugi::Policy;

impl Host {
    /// From now on the host follows another path policy.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = Some(policy.under(self.plan.options.repeat));
        if let Some(process) = &mut self.process {
            process.state.set_policy(policy);
            process.follows.clear();
        }
    }
}
