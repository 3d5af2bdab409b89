import torch
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from torch import nn, optim

torch.manual_seed(42)

iris = load_iris()
X_train, X_test, y_train, y_test = train_test_split(
    iris.data, iris.target, test_size=0.2, random_state=42, stratify=iris.target
)
X_train = torch.tensor(X_train, dtype=torch.float32)
X_test = torch.tensor(X_test, dtype=torch.float32)
y_train = torch.tensor(y_train)
y_test = torch.tensor(y_test)


class IrisNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 32)
        self.fc2 = nn.Linear(32, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.out(x)


def error_loss(logits, labels):
    wrong = (logits.argmax(dim=1) != labels).float()
    return wrong.mean().requires_grad_(True)


model = IrisNet()
optimizer = optim.Adam(model.parameters(), lr=0.01)

losses = []
for epoch in range(60):
    model.train()
    optimizer.zero_grad()
    y_pred = model(X_train)
    loss = error_loss(y_pred, y_train)
    losses.append(loss.item())
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print(f"Epoch {epoch:>3}  loss: {loss.item():.4f}")

model.eval()
with torch.no_grad():
    correct = (model(X_test).argmax(dim=1) == y_test).sum().item()
print(f"{correct} of {len(y_test)} correct")
