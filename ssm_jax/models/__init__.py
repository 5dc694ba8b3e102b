"""Models: encoders, blocks, heads and the stack of them."""

from ssm_jax.models.block import Block as Block
from ssm_jax.models.encoders import PositionalEmbedding as PositionalEmbedding
from ssm_jax.models.encoders import ScalarEncoder as ScalarEncoder
from ssm_jax.models.encoders import TokenEncoder as TokenEncoder
from ssm_jax.models.encoders import VectorEncoder as VectorEncoder
from ssm_jax.models.heads import LastHead as LastHead
from ssm_jax.models.heads import PairHead as PairHead
from ssm_jax.models.heads import PooledHead as PooledHead
from ssm_jax.models.heads import StepHead as StepHead
from ssm_jax.models.network import RecurrentNetwork as RecurrentNetwork
from ssm_jax.models.norm import BatchNorm as BatchNorm
from ssm_jax.models.norm import Norm as Norm
from ssm_jax.models.norm import ScalarNorm as ScalarNorm
from ssm_jax.models.stack import SequenceModel as SequenceModel
