import torch
from torch import nn
from torch.distributions import Categorical


def network(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, n_out))


class PolicyGradient:
    def __init__(self, info_state, actions, max_grad_norm=0.5):
        self.policy_net = network(info_state, actions)
        self.q_net = network(info_state, actions)
        self.max_grad_norm = max_grad_norm
        self.pi_optimizer = torch.optim.SGD(self.policy_net.parameters(), lr=0.05)
        self.critic_optimizer = torch.optim.SGD(self.q_net.parameters(), lr=0.05)

    def critic_update(self, states, actions, returns):
        q = self.q_net(states).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.mse_loss(q, returns)
        self.critic_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q_net.parameters(), self.max_grad_norm)
        self.critic_optimizer.step()
        return loss.item()

    def pi_update(self, states):
        logits = self.policy_net(states)
        q_values = self.q_net(states).detach()
        policy = logits.softmax(-1)
        advantage = q_values - (policy.detach() * q_values).sum(1, keepdim=True)
        entropy = Categorical(logits=logits).entropy().mean()
        loss = -(policy * advantage).sum(1).mean() * 10 - 0.01 * entropy
        self.pi_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy_net.parameters(), self.max_grad_norm)
        self.pi_optimizer.step()
        return loss.item()


def episode(agent, n=64):
    states = torch.randn(n, 6)
    actions = Categorical(logits=agent.policy_net(states)).sample()
    returns = 3 * states.gather(1, actions[:, None]).squeeze(1)
    return states, actions, returns


def main():
    torch.manual_seed(27)
    agent = PolicyGradient(6, 4)
    for i in range(100):
        states, actions, returns = episode(agent)
        critic = agent.critic_update(states, actions, returns)
        pi = agent.pi_update(states)
        if i % 20 == 0:
            print(i, round(critic, 3), round(pi, 3), round(returns.mean().item(), 3))


main()
