//! What a port of tagged messages promises, over real sockets on the loopback interface.

mod failing;
mod lending;
mod pair;
mod pushing;
mod receiving;
mod refusing;
