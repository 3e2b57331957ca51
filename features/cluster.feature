Feature: Several servers
  One of them leads and does the work. When it is gone, another one goes on, and nothing that was acknowledged is lost.

  Scenario: One of three servers dies
    Given three servers work together
    And Ada's app is connected and follows "match:1"
    When the backend tells of 5 events about "match:1"
    And the server that leads dies
    And the backend tells of 5 events about "match:1"
    And Ada's app comes back
    Then Ada's app has got the 10 events, in order, once

  Scenario: An event that was waiting when its server died is pushed by another one
    Given Ada's phone is subscribed to "goal" of "team:42"
    And three servers work together
    And the provider cannot be reached for now
    When the backend tells of a "goal" about "team:42"
    And the server that leads dies
    And the provider answers again
    Then Ada's phone is pushed once

  Scenario: A subscription survives the death of its server
    Given three servers work together
    And Ada's phone is subscribed to "goal" of "team:42"
    When the server that leads dies
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once

  Scenario: An upgrade, one server after the other
    Given three servers work together
    And Ada's app is connected and follows "match:1"
    When the backend tells of 5 events about "match:1"
    And the server that leads is stopped for an upgrade
    And Ada's app comes back
    And the backend tells of 5 events about "match:1"
    And the server that leads is stopped for an upgrade
    And Ada's app comes back
    And the backend tells of 5 events about "match:1"
    Then Ada's app has got the 15 events, in order, once
