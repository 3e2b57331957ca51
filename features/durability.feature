Feature: What was acknowledged stays
  When the server dies in the middle of the work, what it said yes to is still done.

  Background:
    Given the server is running

  Scenario: An event survives the death of the server
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the provider cannot be reached for now
    When the backend tells of a "goal" about "team:42"
    And the server is killed and started again
    And the provider answers again
    Then Ada's phone is pushed once

  Scenario: A notification whose answer was lost takes its own place
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the provider takes everything but does not answer for now
    When the backend tells of a "goal" about "team:42"
    And Ada's phone has got it
    And the server is killed and started again
    And the provider answers again
    Then Ada's phone is pushed again, and shows one notification

  Scenario: A subscription survives the death of the server
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the server is killed and started again
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once

  Scenario: A connected app misses nothing when the server dies
    Given Ada's app is connected and follows "match:1"
    When the backend tells of 5 events about "match:1"
    And the server is killed and started again
    And the backend tells of 5 events about "match:1"
    And Ada's app comes back
    Then Ada's app has got the 10 events, in order, once
