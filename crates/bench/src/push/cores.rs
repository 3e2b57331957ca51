//! Which cores the two sides have: the sender one, the provider one or more, so that it is not what limits the sender.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tidings_server::command_error::{CommandError, failed};

use crate::process::{self, Cores};

/// Each side's cores; the same one for both where there is no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sides {
    pub(super) server: usize,
    /// At least one.
    pub(super) provider: Vec<usize>,
}

impl Sides {
    /// The first core that this process may use, and the next `provider_count` ones.
    pub(super) fn choose(provider_count: usize) -> Result<Self, CommandError> {
        let Cores { server, load } = Cores::choose()?;
        if provider_count == 1 {
            return Ok(Self { server, provider: vec![load] });
        }
        let allowed = sched_getaffinity(None).map_err(io::Error::from)?;
        let others = (0..CpuSet::MAX_CPU).filter(|&core| core != server && allowed.is_set(core));
        let provider: Vec<usize> = others.take(provider_count).collect();
        if provider.len() == provider_count {
            return Ok(Self { server, provider });
        }
        Err(failed(format!("--provider-cores {provider_count}: there are {} beside the sender's", provider.len())))
    }

    /// Starts a process on the provider's cores: it is held to those of whoever starts it.
    pub(super) fn start_provider<T>(&self, start: impl FnOnce() -> Result<T, CommandError>) -> Result<T, CommandError> {
        hold_thread(&self.provider)?;
        let started = start();
        hold_thread(&[self.server])?;
        started
    }

    /// Holds this process to the sender's core.
    pub(super) fn hold_sender(&self) -> io::Result<()> {
        process::pin(self.server)
    }
}

/// Holds this thread, and those it starts later, to some cores.
pub(super) fn hold_thread(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&core| core < CpuSet::MAX_CPU).for_each(|&core| set.set(core));
    Ok(sched_setaffinity(None, &set)?)
}

/// As an argument, and back; `None` for anything but at least one number.
pub(super) fn write_list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn read_list(text: &str) -> Option<Vec<usize>> {
    text.split(',').map(|core| core.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_cores_are_promised_than_there_are() {
        let sides = Sides::choose(1).unwrap();
        assert_eq!(sides.provider.len(), 1);
        assert!(Sides::choose(CpuSet::MAX_CPU).is_err());
        if let Ok(sides) = Sides::choose(2) {
            assert!(!sides.provider.contains(&sides.server) && sides.provider[0] != sides.provider[1]);
        }
    }

    #[test]
    fn a_list_of_cores_comes_back_as_it_was() {
        assert_eq!(read_list(&write_list(&[1, 2, 30])), Some(vec![1, 2, 30]));
        assert_eq!((read_list(""), read_list("1,x")), (None, None));
    }
}
