//! The TCP port of an endpoint's number, by which peers learn from its kernel that its process is there.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use tsumugi::{Config, Endpoint};

fn lacks_a_sign_of_life(endpoint: &Endpoint) -> bool {
    endpoint.report().given_up.iter().any(|lack| lack.what.starts_with("a sign of life"))
}

#[test]
fn a_listener_of_the_program_on_the_port_is_the_sign_of_life() {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    let config = Config::loopback().port(address.port());
    assert!(lacks_a_sign_of_life(&Endpoint::open(config.clone()).unwrap()), "the port is taken");
    let endpoint = Endpoint::open(config.listener(Arc::clone(&listener))).unwrap();
    assert!(!lacks_a_sign_of_life(&endpoint));
    // As long as the endpoint is there, whatever the program does.
    drop(listener);
    TcpStream::connect(address).unwrap();
    drop(endpoint);
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn an_endpoint_on_another_port_than_the_programs_listener_has_its_own() {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let endpoint = Endpoint::open(Config::loopback().listener(listener)).unwrap();
    assert!(!lacks_a_sign_of_life(&endpoint));
    TcpStream::connect(endpoint.address()).unwrap();
}
